"""The journal: each session's readable copy in Markdown, which is on disk before the database has what arrived."""
