package diagnose

// KeyPatterns returns the patterns of keys, each with true if its keys may have no lifetime.
func KeyPatterns() map[string]bool { return keyPatterns() }
