"""One file per page, each with a function `page(context)`."""
