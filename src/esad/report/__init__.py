"""One self-contained HTML file about a model and a data set: no script, no network, every cell escaped."""
