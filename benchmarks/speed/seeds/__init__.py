"""The changes the project grew from, each before and after, side by side: equal values, and what each costs."""
