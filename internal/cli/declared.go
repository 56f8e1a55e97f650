package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// readDeclaredFile reads the orgs of a file. It refuses any other section of a configuration,
// so that a user does not assume it was applied.
func readDeclaredFile(path string, stdin io.Reader) ([]map[string]any, error) {
	name, in, err := opened(path, stdin)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var file struct {
		Orgs []map[string]any `yaml:"orgs"`
	}
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: a file with only orgs is needed; `llmguard config reload` applies a configuration: %s", name,
			strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	if len(file.Orgs) == 0 {
		return nil, fmt.Errorf("%s: expected a list `orgs`, as in the configuration (`llmguard config export` prints one)",
			name)
	}
	types := jsonTypes()
	for _, org := range file.Orgs {
		asTexts(types, "", org)
	}
	return file.Orgs, nil
}

// jsonTypes returns the types that fields have in the API, by name. A name has the same type everywhere.
func jsonTypes() map[string]reflect.Type {
	out := map[string]reflect.Type{"id": reflect.TypeFor[string](), "hash": reflect.TypeFor[string]()}
	var walk func(section reflect.Type)
	walk = func(section reflect.Type) {
		for _, f := range settings.RuntimeFields(section) {
			out[f.Name] = f.MemberType()
			if settings.IsSection(f.Type) {
				walk(f.Type)
			}
		}
	}
	for _, section := range []reflect.Type{
		reflect.TypeFor[settings.Org](), reflect.TypeFor[settings.User](), reflect.TypeFor[settings.Key](),
		reflect.TypeFor[settings.Limit](),
	} {
		walk(section)
	}
	return out
}

// asTexts converts values that the API takes as text, and YAML may parse as numbers or dates, in place.
func asTexts(types map[string]reflect.Type, name string, value any) any {
	as := types[name]
	switch v := value.(type) {
	case map[string]any:
		for key, one := range v {
			v[key] = asTexts(types, key, one)
		}
	case []any:
		for i, one := range v {
			v[i] = asTexts(types, "", one)
		}
	case string:
		if t, err := time.Parse(time.DateOnly, v); err == nil && as == reflect.TypeFor[time.Time]() {
			return t.Format(time.RFC3339)
		}
	case int, int64, uint64, float64:
		if as != nil && as.Kind() == reflect.String {
			return fmt.Sprint(v)
		}
	}
	return value
}

func configExportCommand() *cobra.Command {
	var f usageFlags
	c := &cobra.Command{
		Use: "export", Short: "Print the orgs in force (file and Redis) in the format of `llmguard apply`",
		Args: cobra.NoArgs,
		Long: "Prints orgs with their users, keys and limits as they are in force: the values of the file, overridden by those in Redis.\n" +
			"Administrators with write access also get the key hashes, so keys keep working where you apply the output. Overrides,\n" +
			"which expire, and credentials, which are secret, are not included.\n\n" +
			adminHelp,
		Example: "  llmguard config export --out orgs.yaml\n  llmguard config export --org acme",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		l, err := f.open(c.Context(), false)
		if err != nil {
			return err
		}
		defer l.close()
		var all struct {
			Orgs []json.RawMessage `json:"orgs"`
		}
		for _, org := range l.orgs {
			one, err := get[json.RawMessage](c.Context(), l.adminClient, pathOf("orgs", org, "declaration"))
			if err != nil {
				return err
			}
			all.Orgs = append(all.Orgs, one)
		}
		return render(c.OutOrStdout(), f.output, all, nil)
	}
	f.add(c, "yaml", "json")
	return c
}
