"""What was learnt, as pictures: reports."""
