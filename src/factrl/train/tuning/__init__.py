"""What offline methods learn from: targets, pairs and labelled rows.  Nothing here trains or needs torch."""
