"""Value maps of rank at most r: bounds on the count, and heads that attain the upper one."""
