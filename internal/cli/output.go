package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/pricing"
)

// Output formats of commands: for lists of records, and for output without rows.
var (
	listFormats  = []string{"table", "json", "yaml", "csv", "jsonl"}
	plainFormats = []string{"table", "json", "yaml"}
)

// formatsOf is the flag annotation with the formats that a command supports.
const formatsOf = "llmguard_formats"

// formatFlag adds -o to a command; the first format is the default.
func formatFlag(c *cobra.Command, output *string, formats ...string) {
	c.Flags().StringVarP(output, "output", "o", formats[0], "format: "+strings.Join(formats, ", "))
	_ = c.Flags().SetAnnotation("output", formatsOf, formats)
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

func checkFormat(c *cobra.Command) error {
	f := c.Flags().Lookup("output")
	if f == nil || slices.Contains(f.Annotations[formatsOf], f.Value.String()) {
		return nil
	}
	text, advice := f.Value.String(), ""
	if strings.ContainsAny(text, "./-") {
		advice = "; to write to a file, use --out " + text
	}
	return misused("--output %s: expected one of %s%s", text, strings.Join(f.Annotations[formatsOf], ", "), advice)
}

// written runs a command, passes --exact to its printers, and redirects the output to the --out
// file, which is written completely or not at all.
func written(c *cobra.Command, exact bool, run func() error) error {
	to, _ := c.Flags().GetString("out")
	table := c.Flags().Lookup("output").Value.String() == "table"
	exact = exact || !table
	if to == "" {
		c.SetOut(&page{c.OutOrStdout(), exact, table})
		return run()
	}
	var failed error
	err := intoFile(to, func(w io.Writer) error {
		c.SetOut(&page{w, exact, table})
		failed = run()
		if _, code := errors.AsType[exit](failed); code { // an exit code alone does not discard the output
			return nil
		}
		return failed
	})
	return errors.Join(failed, excluding(err, failed))
}

// excluding returns err, or nil if it is other.
func excluding(err, other error) error {
	if err == nil || errors.Is(err, other) {
		return nil
	}
	return err
}

// page is the output of a command. What a terminal would interpret is escaped in tables.
type page struct {
	io.Writer
	exact, table bool
}

// colors restores the colors of findings, the only control sequences that commands print.
var colors = strings.NewReplacer(`\u001B[32m`, "\x1b[32m", `\u001B[33m`, "\x1b[33m", `\u001B[31;1m`, "\x1b[31;1m",
	`\u001B[0m`, "\x1b[0m")

func (p *page) Write(text []byte) (int, error) {
	shown := text
	if p.table {
		shown = []byte(colors.Replace(escape.Lines(string(shown))))
	}
	if _, err := p.Writer.Write(shown); err != nil {
		return 0, err
	}
	return len(text), nil
}

// usd formats an amount for an output: with all nine decimals if the command has --exact or writes records.
func usd(w io.Writer, n pricing.Nano) string {
	p, ok := w.(*page)
	return figures.Money(n, !ok || p.exact)
}

// decimalUSD is usd for an amount as the API writes it, without its sign.
func decimalUSD(w io.Writer, text string) string {
	n, err := pricing.ParseUSD(strings.TrimPrefix(text, "-"))
	if err != nil {
		return "$" + text
	}
	if strings.HasPrefix(text, "-") {
		n = -n
	}
	return usd(w, n)
}

// quantityText formats an amount in the unit of a limit.
func quantityText(w io.Writer, unit string, n int64) string {
	if unit == "nano_usd" {
		return usd(w, pricing.Nano(n))
	}
	return whole(n)
}

// behind returns the writer below a page.
func behind(w any) any {
	if p, ok := w.(*page); ok {
		return p.Writer
	}
	return w
}

// render writes v in a machine-readable format, or calls table. Lists become lines of CSV or
// JSON Lines; any other value is one line.
func render(w io.Writer, format string, v any, table func(io.Writer) error) error {
	if format == "table" {
		return table(w)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if format == "json" {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return err
	}
	switch format {
	case "json":
		_, err := w.Write(b.Bytes())
		return err
	case "yaml":
		text, err := yaml.JSONToYAML(b.Bytes())
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(w, strings.TrimRight(string(text), "\n"))
		return err
	}
	rows, err := rowsOf(b.Bytes())
	if err != nil {
		return err
	}
	if format == "jsonl" {
		for _, row := range rows {
			if _, err := fmt.Fprintf(w, "%s\n", row); err != nil {
				return err
			}
		}
		return nil
	}
	return writeCSV(w, rows)
}

// rowsOf returns the elements of a JSON array, or the single value.
func rowsOf(text []byte) ([]json.RawMessage, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || text[0] != '[' {
		return []json.RawMessage{text}, nil
	}
	var rows []json.RawMessage
	err := json.Unmarshal(text, &rows)
	return rows, err
}

// writeCSV writes a header of member names and one line per object. Nested values are written
// as JSON.
func writeCSV(w io.Writer, rows []json.RawMessage) error {
	var head []string
	lines := make([]map[string]string, len(rows))
	for i, row := range rows {
		lines[i] = map[string]string{}
		err := eachMember(row, func(name string, value json.RawMessage) {
			if !slices.Contains(head, name) {
				head = append(head, name)
			}
			lines[i][name] = csvCell(value)
		})
		if err != nil {
			return err
		}
	}
	if head == nil {
		return nil
	}
	table := [][]string{head}
	for _, line := range lines {
		cells := make([]string, len(head))
		for i, name := range head {
			cells[i] = line[name]
		}
		table = append(table, cells)
	}
	return escape.NewCSV(w).WriteAll(table)
}

// eachMember calls fn for the members of a JSON object, in order.
func eachMember(object json.RawMessage, fn func(name string, value json.RawMessage)) error {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.Join(err, errors.New("no records to write as CSV"))
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		fn(fmt.Sprint(name), value)
	}
	return nil
}

func csvCell(value json.RawMessage) string {
	var text string
	switch {
	case string(value) == "null":
		return ""
	case value[0] == '"' && json.Unmarshal(value, &text) == nil:
		return ledger.CellText(text)
	}
	return string(value)
}

func streamLines(c *cobra.Command, o *operated, a *adminClient) error {
	w := bufio.NewWriterSize(c.OutOrStdout(), 1<<16)
	err := a.lines(c.Context(), o.path(), func(line json.RawMessage) error {
		_, err := w.Write(append(line, '\n'))
		return err
	})
	return errors.Join(err, w.Flush())
}

// intoFile writes a file that only its owner can read, completely or not at all.
func intoFile(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.part")
	if where, ok := errors.AsType[*fs.PathError](err); ok { // the temporary name means nothing to the user
		return fmt.Errorf("cannot write %s: %w", name, where.Err)
	}
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is renamed when all went well
	w := bufio.NewWriterSize(f, 1<<16)
	if err := errors.Join(write(w), w.Flush(), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
