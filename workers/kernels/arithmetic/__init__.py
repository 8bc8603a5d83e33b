"""The model's arithmetic on arrays and on blocks of words."""
