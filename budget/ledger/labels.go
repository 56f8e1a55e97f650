package ledger

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// Labels are dimensions of a call beyond org, user, key and address, such as project=mobile. The
// text is "name=value,name=value", sorted by name, so Labels can be compared. NewLabels makes them.
type Labels string

// Bounds of labels.
const (
	MaxLabels     = 9                      // of a call: 8 of the configuration, and its group
	MaxLabelName  = settings.MaxLabelName  // 32 bytes
	MaxLabelValue = settings.MaxLabelValue // 128 bytes
)

// OtherLabel replaces the values of a label beyond its maximum number per day. No caller can send
// it.
const OtherLabel = "(other)"

const labelSep = ","

// GroupLabel is the label with the group of the call's user. The configuration cannot define it.
const GroupLabel = "group"

// ValidLabelName reports whether a text can name a label: 1 to 32 of a-z, 0-9 and _, and not org,
// user, key or ip, which limits count by already. Calls have GroupLabel, but nothing else may set it.
func ValidLabelName(name string) bool {
	return name == GroupLabel || settings.CheckLabelName(name) == nil
}

// ValidLabelValue reports whether a text can be the value of a label: at most 128 letters, digits
// and . _ - : / @ + = ~ # %. It may be empty.
func ValidLabelValue(value string) bool { return value == "" || settings.ValidLabelValue(value) }

// NewLabels returns labels by name. Empty values are left out.
func NewLabels(values map[string]string) (Labels, error) {
	names := make([]string, 0, len(values))
	for name, value := range values {
		if !ValidLabelName(name) {
			return "", fmt.Errorf("ledger: %.40q cannot name a label", name)
		}
		if !ValidLabelValue(value) && value != OtherLabel {
			return "", fmt.Errorf("ledger: %.200q cannot be the value of label %s", value, name)
		}
		if value != "" {
			names = append(names, name)
		}
	}
	if len(names) > MaxLabels {
		return "", fmt.Errorf("ledger: %d labels, at most %d", len(names), MaxLabels)
	}
	slices.Sort(names)
	for i, name := range names {
		names[i] = name + "=" + values[name]
	}
	return Labels(strings.Join(names, labelSep)), nil
}

// All returns names and values, sorted by name.
func (l Labels) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for rest := string(l); rest != ""; {
			var one string
			one, rest, _ = strings.Cut(rest, labelSep)
			name, value, _ := strings.Cut(one, "=")
			if !yield(name, value) {
				return
			}
		}
	}
}

// Get returns the value of a label; "" if the call does not have it.
func (l Labels) Get(name string) string {
	for n, value := range l.All() {
		if n == name {
			return value
		}
	}
	return ""
}

// Map returns the values by name; nil for none.
func (l Labels) Map() map[string]string {
	if l == "" {
		return nil
	}
	return maps.Collect(l.All())
}

// With returns the labels with one value replaced; an empty value removes the label.
func (l Labels) With(name, value string) Labels {
	values := maps.Collect(l.All())
	values[name] = value
	out, err := NewLabels(values)
	if err != nil {
		return l
	}
	return out
}

// MarshalJSON encodes the labels as an object.
func (l Labels) MarshalJSON() ([]byte, error) { return json.Marshal(l.Map()) }

// UnmarshalJSON decodes an object of texts.
func (l *Labels) UnmarshalJSON(text []byte) error {
	var values map[string]string
	if err := json.Unmarshal(text, &values); err != nil {
		return err
	}
	out, err := NewLabels(values)
	*l = out
	return err
}
