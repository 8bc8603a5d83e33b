"""The changes that the project grew from, in old and new form: equal values, and the costs."""
