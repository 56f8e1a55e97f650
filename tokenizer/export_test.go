package tokenizer

// Count returns Count(enc, text), cached. Texts shorter than 200 bytes are always counted.
func (c *Cache) Count(enc Encoding, text []byte) int {
	return c.CountClasses(enc, text).Tokens
}
