// Command man writes a manual page for each llmguard command into a directory, for packages.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"

	"github.com/llmguard/llmguard/internal/cli"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: man VERSION DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

// write writes the pages. The same version always yields the same bytes.
func write(version, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root := cli.Root()
	root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: "1", Source: "llmguard " + version, Manual: "llmguard"}
	return doc.GenManTree(root, header, dir)
}
