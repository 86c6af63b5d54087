"""Parts of SupaClaw that live inside other programs, each with its installer."""
