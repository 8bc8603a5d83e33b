"""Report page: one offline HTML file about campaigns."""
