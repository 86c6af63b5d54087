-- The files that a task keeps: paths in its folder of the workspace, tasks/<first task of the tree>/<task>/.
alter table tasks add column storage_paths text[] not null default '{}';
