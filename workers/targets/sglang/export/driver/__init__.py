"""What exported tests of SGLang have in them: nothing here imports this project."""
