"""One report for every tool that checks something: its checks, and how terminal, HTML and Markdown show them."""
