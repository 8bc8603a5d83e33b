"""What drafters share: sums over a cache, scratch writes, scripted drafts."""
