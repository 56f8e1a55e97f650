package tokenizer

// Count returns Count(enc, text), from memory if it is there. Texts shorter
// than 200 bytes are always counted.
func (c *Cache) Count(enc Encoding, text []byte) int {
	return c.CountClasses(enc, text).Tokens
}
