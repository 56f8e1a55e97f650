package driver

// KeysOf returns where the keys of a listed command are.
func KeysOf(name string) (first, last, step int, ok bool) {
	s, ok := keysOf(name)
	return s.first, s.last, s.step, ok
}

var (
	PrefixOf  = prefixOf
	OptionsOf = Config.options
)
