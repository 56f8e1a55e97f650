package admin

// listCalibration shows what was learned of models whose tokenizer is not public.
func (c *call) listCalibration() (any, error) {
	rows, err := c.o.Calibration(c.r.Context())
	return listOf(rows), err
}
