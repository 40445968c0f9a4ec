"""The pictures and numbers of the documentation, each made by a module here: `make figures`."""
