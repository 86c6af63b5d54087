-- Held for another change, whose file of this name takes its place.
select;
