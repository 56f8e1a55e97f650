package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

// readDeclaredFile reads the orgs of a file. Other parts of a configuration are not its business
// and are refused, so that nobody believes them applied.
func readDeclaredFile(path string, stdin io.Reader) ([]map[string]any, error) {
	name, in := path, stdin
	if path == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var file struct {
		Orgs []map[string]any `yaml:"orgs"`
	}
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %s", name, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	if len(file.Orgs) == 0 {
		return nil, fmt.Errorf("%s: expected a list `orgs`, as in the configuration; `llmguard config export` prints one",
			name)
	}
	for _, org := range file.Orgs {
		asTexts("", org)
	}
	return file.Orgs, nil
}

// texts are the fields that YAML may read as numbers or times, and that the API takes as texts.
var texts = map[string]bool{
	"amount": true, "capacity": true, "refill": true, "max_wait": true, "window": true,
	"only": true, "id": true, "name": true,
}

// asTexts makes texts of what the API takes as texts, in place.
func asTexts(name string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, one := range v {
			v[key] = asTexts(key, one)
		}
	case []any:
		for i, one := range v {
			v[i] = asTexts("", one)
		}
	case string:
		if t, err := time.Parse(time.DateOnly, v); err == nil && name == "expires" {
			return t.Format(time.RFC3339)
		}
	case int, int64, uint64, float64:
		if texts[name] {
			return fmt.Sprint(v)
		}
	}
	return value
}

func configExportCommand() *cobra.Command {
	var f usageFlags
	c := &cobra.Command{
		Use: "export", Short: "Print the orgs in force, of file and Redis, in the form that `llmguard apply` reads",
		Args: cobra.NoArgs,
		Long: "Prints orgs with their users, keys and limits as they are in force: those of the file with what is recorded over them.\n" +
			"Hashes of keys are among them for administrators who may write: with those, keys continue to work where it is applied.\n" +
			"Overrides end on their own and credentials are secret; neither is printed.\n\n" +
			adminHelp,
		Example: "  llmguard config export --out orgs.yaml\n  llmguard config export --org acme",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		l, err := f.open(c.Context())
		if err != nil {
			return err
		}
		defer l.Close()
		var all struct {
			Orgs []json.RawMessage `json:"orgs"`
		}
		for _, org := range l.orgs {
			var one json.RawMessage
			if err := l.ask(c.Context(), http.MethodGet, pathOf("orgs", org, "declaration"), nil, &one); err != nil {
				return err
			}
			all.Orgs = append(all.Orgs, one)
		}
		return render(c.OutOrStdout(), f.output, all, nil)
	}
	f.add(c, "yaml", "json")
	return c
}
