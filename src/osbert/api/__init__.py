"""The functions of the Python library. They import what they need when they are called: importing osbert is quick."""
