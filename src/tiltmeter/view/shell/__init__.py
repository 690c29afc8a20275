"""The one design of every report: colours, head, contents, paper."""
