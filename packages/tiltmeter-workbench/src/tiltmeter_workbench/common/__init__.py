"""What several workbenches share: table files, report tables and the HTML report."""
