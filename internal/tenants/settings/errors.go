package settings

import "strings"

// FieldError is what is wrong with a field that was not read from a file.
type FieldError struct {
	Thing   string // what the field is of, such as "limit daily"; empty: what was asked about
	Field   string // such as "amount" or "bucket.refill"; empty: the whole
	Message string
}

func (e *FieldError) Error() string {
	text := e.Message
	for _, part := range []string{e.Field, e.Thing} {
		if part != "" {
			text = part + ": " + text
		}
	}
	return text
}

// FieldErrors are all that is wrong.
type FieldErrors []*FieldError

func (l FieldErrors) Error() string {
	all := make([]string, len(l))
	for i, e := range l {
		all[i] = e.Error()
	}
	return strings.Join(all, "; ")
}

// Unwrap returns the first.
func (l FieldErrors) Unwrap() error { return l[0] }
