-- What their person edited after a turn had taken it, or deleted: the text stays, but it is no longer that person's word, no
-- prompt has it, and memory leaves it out. The new text of an edit is a message of its own.
alter table messages add column withdrawn text check (withdrawn in ('edited', 'deleted'));
