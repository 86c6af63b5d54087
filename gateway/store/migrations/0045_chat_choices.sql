-- Until when the model that was chosen for a chat is asked; whether its answers are read aloud; and when a person was told
-- how recordings are heard, which is done once.
alter table addresses add column model_until timestamptz, add column voice text;
alter table principals add column recordings_explained_at timestamptz;
