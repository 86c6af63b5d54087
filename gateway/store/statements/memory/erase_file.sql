with gone as (
  update files set path = 'erased/' || id, mime = '', size = 0, sha256 = '', description = '',
    text_path = '', view_path = '', pages = 0, problem = 'it was erased', derived_at = now()
  where principal_id = $1 and $2 in (path, text_path) returning id)
update attachments set name = $3 where file_id in (select id from gone)
