package calibration

// Input returns an org's factors from estimated to billed input tokens, per
// mille: expected, and to hold. Hold is below neither mean nor 1000, and neither
// is above Options.Cap unless the prior is. It does no I/O and does not allocate.
func (c *Calibration) Input(org, model string, class Class) (meanPermille, holdPermille int) {
	f := c.factors(org, model, class)
	return f.mean, f.hold
}

// Base returns the tokens the provider adds to every prompt of a class, such as
// a hidden system prompt; 0 until it shows.
func (c *Calibration) Base(org, model string, class Class) int64 {
	return c.factors(org, model, class).base
}
