"""Tasks, schedules, approvals and agents: the rules shared by chats, the page and the terminal."""
