package pricing

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// FeedForm is a supported format of price lists: another project's, or a table of your own.
type FeedForm struct {
	Name   string
	Source string // the URL that publishes it, or a description
	read   func(io.Reader) (*Feed, error)
}

// FeedForms returns the supported formats of feeds.
func FeedForms() []FeedForm {
	return []FeedForm{
		{"genai-prices", "https://raw.githubusercontent.com/pydantic/genai-prices/main/prices/data.json", ImportGenAI},
		{
			"litellm", "https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json",
			ImportLiteLLM,
		},
		{"csv", "your own: model,provider,input,output,... (docs/prices.md)", ImportCSV},
	}
}

// ModelsDev is a format that is detected, so that an error can name it, but not read.
const ModelsDev = "models.dev"

// OwnForm is the format of the configuration's prices.
const OwnForm = "yaml"

// List is a price list: a feed, or entries in our own format.
type List struct {
	Form string
	Feed *Feed
	// Whole is set for a complete catalogue file in our own format: models missing in it are
	// removed.
	Whole *Catalogue
}

// ErrNotText means that a price list is not a text file.
var ErrNotText = errors.New("pricing: not a text file")

// ReadList reads a price list in a format; if form is empty, the format is detected.
func ReadList(text []byte, form string) (*List, error) {
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return nil, ErrNotText
	}
	form = cmp.Or(form, DetectForm(text))
	if form == OwnForm {
		return readOwnForm(text)
	}
	forms := FeedForms()
	i := slices.IndexFunc(forms, func(f FeedForm) bool { return f.Name == form })
	if i < 0 {
		return nil, fmt.Errorf("pricing: no form of price list is called %.80q", form)
	}
	feed, err := forms[i].read(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	if len(feed.Entries) == 0 {
		return nil, fmt.Errorf("pricing: no prices in it; is it a file of %s?", form)
	}
	return &List{Form: form, Feed: feed}, nil
}

// DetectForm detects a format by its outermost structure; anything that is not the JSON of a feed
// is assumed to be our YAML.
func DetectForm(text []byte) string {
	var list []struct {
		Model string `json:"model"`
	}
	switch err := json.Unmarshal(text, &list); {
	case err == nil && len(list) > 0 && list[0].Model != "":
		return OwnForm
	case err == nil:
		return "genai-prices"
	}
	head, _, _ := strings.Cut(string(text), "\n")
	columns := strings.Split(strings.TrimSpace(head), ",")
	if len(columns) > 1 && slices.Contains(columns, "model") {
		return "csv"
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil {
		return OwnForm
	}
	for _, raw := range object {
		var v struct {
			Models   json.RawMessage `json:"models"`
			Provider json.RawMessage `json:"litellm_provider"`
		}
		switch err := json.Unmarshal(raw, &v); {
		case err != nil:
		case v.Models != nil:
			return ModelsDev
		case v.Provider != nil:
			return "litellm"
		}
	}
	return OwnForm
}

// readOwnForm reads a catalogue file, or a list of entries like prices in the configuration.
func readOwnForm(text []byte) (*List, error) {
	l := &List{Form: OwnForm, Feed: &Feed{}}
	list, err := ParseEntries(text)
	if err == nil && len(list) == 0 {
		err = errors.New("no prices in it")
	}
	if err == nil {
		err = l.setOwn(text, list)
	}
	if err == nil {
		return l, nil
	}
	if fault := CheckJSON(text); fault != nil && looksJSON(text) {
		err = fault
	}
	return nil, err
}

// setOwn parses a text as a catalogue, or otherwise uses its entries as overrides of the built-in
// ones.
func (l *List) setOwn(text []byte, list []Entry) error {
	whole, err := Parse(text)
	if err == nil {
		l.Whole, l.Feed.Entries = whole, whole.Entries()
		return nil
	}
	base, err := Embedded()
	if err != nil {
		return err
	}
	base, err = base.With(list)
	if err != nil {
		return err
	}
	l.Feed.Entries = base.Entries()[:len(list)] // with shared multipliers expanded
	return nil
}

// looksJSON distinguishes a truncated feed from YAML.
func looksJSON(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n[")
	return len(text) > 1 && text[0] == '{' && bytes.HasPrefix(bytes.TrimLeft(text[1:], " \t\r\n"), []byte{'"'})
}

// Against returns the built-in catalogue and the one that this list would result in. A feed has
// only current prices and some of the models, so both are reduced to what is in effect at a time;
// partial is true then.
func (l *List) Against(at time.Time) (old, fresh *Catalogue, partial bool, err error) {
	old, err = Embedded()
	switch {
	case err != nil:
		return nil, nil, false, err
	case l.Whole != nil:
		return old, l.Whole, false, nil
	case l.Form == OwnForm:
		fresh, err = old.With(l.Feed.Entries)
		return old, fresh, false, err
	}
	old, err = New(old.Unit(), inForce(old.Entries(), at))
	if err == nil {
		fresh, err = New("", inForce(l.Feed.Entries, at))
	}
	return old, fresh, true, err
}

// inForce returns entries with the prices in effect at a time, undated.
func inForce(list []Entry, at time.Time) []Entry {
	var out []Entry
	for _, e := range list {
		e.Prices = e.InForce(at)
		if len(e.Prices) == 0 {
			continue
		}
		for i := range e.Prices {
			e.Prices[i].EffectiveFrom = time.Time{}
		}
		out = append(out, e)
	}
	return out
}
