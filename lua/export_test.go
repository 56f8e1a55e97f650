package lua

import "maps"

// Libraries returns the scripts by name, each with the libraries that it begins with.
func Libraries() map[string][]string { return maps.Clone(libraries) }
