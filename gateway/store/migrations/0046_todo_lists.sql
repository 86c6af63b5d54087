-- The list of a run's steps is its to-do list; a plan is made of calls, and each call that fills a step of it says which.
alter table plans rename to todo_lists;
alter index plans_by_principal rename to todo_lists_by_principal;
alter table todo_lists rename constraint plans_pkey to todo_lists_pkey;
alter table todo_lists rename constraint plans_task_id_fkey to todo_lists_task_id_fkey;
alter table todo_lists rename constraint plans_principal_id_fkey to todo_lists_principal_id_fkey;
alter table messages add column plan_step int;
