package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/app"
)

type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"` // commit time
	Modified bool   `json:"modified"`       // built with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{Version: app.Version(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func versionCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "version", Short: "Print version, commit and build information", Args: cobra.NoArgs,
		Example: "  llmguard version\n" +
			"  llmguard version -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			b := thisBuild()
			return render(c.OutOrStdout(), output, b, func(w io.Writer) error { return b.print(w) })
		},
	}
	formatFlag(c, &output, listFormats...)
	return c
}

// short names the version with the day of its commit.
func (b build) short() string {
	day, _, _ := strings.Cut(b.Time, "T")
	return strings.Trim(b.Version+", "+day, ", ")
}

func (b build) line() string {
	commit := "commit unknown"
	if b.Commit != "" {
		commit = "commit " + b.Commit
	}
	if b.Modified {
		commit += " with changes"
	}
	return fmt.Sprintf("llmguard %s, %s, %s, %s", b.Version, commit, b.Go, b.Platform)
}

func (b build) print(w io.Writer) error {
	text := "llmguard " + b.Version + "\n"
	if b.Commit != "" {
		text += "commit   " + b.Commit
		if b.Modified {
			text += ", with changes"
		}
		text += "\nof       " + b.Time + "\n"
	}
	_, err := fmt.Fprintf(w, "%sbuilt    with %s for %s\n", text, b.Go, b.Platform)
	return err
}
