-- What a program that asks over the API brings with its message, its own tools above all, as JSON; null: nothing.
alter table inbox add client text;
