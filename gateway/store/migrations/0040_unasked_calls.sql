-- Calls that sent or changed something outside without a question. In a turn that has read others' words, one may pass
-- for the person's own words, and only if no other one has passed before.
alter table messages add column unasked boolean;
