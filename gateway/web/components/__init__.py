"""Parts that several screens share: boards, files, rows of memory."""
