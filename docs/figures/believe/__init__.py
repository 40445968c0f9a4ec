"""Study of audits: what they state, against samples of the same distribution that they did not see."""
