package calibration

// Input returns an org's factors from estimated to billed input tokens, per mille: expected,
// and to hold. The hold is at least the mean and 1000, and both are at most Options.Cap unless
// the prior is higher. It does no I/O and does not allocate.
func (c *Calibration) Input(org, model string, class Class) (meanPermille, holdPermille int) {
	f := c.factors(org, model, class)
	return f.mean, f.hold
}

// Base returns the tokens that the provider adds to every prompt of a class, such as a hidden
// system prompt; 0 until it is detected.
func (c *Calibration) Base(org, model string, class Class) int64 {
	return c.factors(org, model, class).base
}
