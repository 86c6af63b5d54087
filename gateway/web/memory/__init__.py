"""The memory on the page: what is asked, what is found, what is changed."""
