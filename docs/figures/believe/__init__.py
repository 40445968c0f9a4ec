"""Study of audits: what they state, against samples of the same law that they did not see."""
