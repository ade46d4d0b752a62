"""What papers print, as figures that anybody can run again: a room for each paper, and one for what they share."""
