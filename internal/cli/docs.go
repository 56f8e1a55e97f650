package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

func docsCommand() *cobra.Command {
	var listen string
	var noOpen bool
	c := &cobra.Command{
		Use: "docs [PAGE]", Short: "Serve this version's documentation on this machine and open it in a browser",
		Args: cobra.MaximumNArgs(1),
		Long: "Serves the documentation with search until Ctrl-C. It is part of the program and needs no network.\n" +
			"PAGE is a file below docs/, such as config/limits, or an anchor in one, such as errors#store_full. A browser is\n" +
			"opened only from a terminal.",
		Example: "  llmguard docs\n" +
			"  llmguard docs config\n" +
			"  llmguard docs errors#rate_limit_exceeded\n" +
			"  llmguard docs --no-open --listen 127.0.0.1:8090",
		RunE: func(c *cobra.Command, args []string) error {
			site, err := llmguard.Site(thisBuild().short())
			if err != nil {
				return err
			}
			page, err := docsPage(llmguard.Pages(site), args)
			if err != nil {
				return err
			}
			if file, entry, named := strings.Cut(page, "?id="); named && !hasEntry(site, file, entry) {
				fmt.Fprintf(c.ErrOrStderr(), "%s has no entry %q; the page opens at its beginning.\n", file, entry)
			}
			at, err := (&net.ListenConfig{}).Listen(c.Context(), "tcp", listen)
			if err != nil {
				return fmt.Errorf("--listen %s: %w", listen, err)
			}
			url := "http://" + at.Addr().String() + "/#" + page
			fmt.Fprintf(c.OutOrStdout(), "Documentation: %s\nCtrl-C stops it.\n", url)
			if !noOpen && terminal(c.OutOrStdout()) {
				openBrowser(c.Context(), c.ErrOrStderr(), url)
			}
			return serveDocs(c.Context(), at, site)
		},
		ValidArgsFunction: completeDocs,
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address to serve on; port 0 takes a free one")
	c.Flags().BoolVar(&noOpen, "no-open", false, "do not open a browser")
	return c
}

// docsPage returns the route of the page named by the arguments.
func docsPage(pages, args []string) (string, error) {
	if len(args) == 0 {
		return "/docs/", nil
	}
	file, anchor, hasAnchor := strings.Cut(args[0], "#")
	name := strings.TrimSuffix(strings.TrimPrefix(path.Clean("/"+file), "/docs"), ".md")
	name = strings.TrimSuffix(name, "/README")
	for _, page := range []string{"/docs" + name, "/docs" + name + "/", "/" + path.Base(file), name, name + "/"} {
		if !slices.Contains(pages, page) {
			continue
		}
		if hasAnchor {
			page += "?id=" + anchor
		}
		return page, nil
	}
	err := fmt.Sprintf("there is no page %q", file)
	if near := settings.Near(strings.TrimPrefix(name, "/"), docsNames(pages)); len(near) > 0 {
		return "", misused("%s; did you mean %s?", err, strings.Join(near, ", "))
	}
	return "", misused("%s; `llmguard docs` without a page opens the list", err)
}

// notInAnchor are the characters that the anchor of a heading lacks.
var notInAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)

// hasEntry reports whether a page has an anchor, of its own or of a heading.
func hasEntry(site map[string][]byte, page, anchor string) bool {
	file := strings.TrimPrefix(page, "/")
	if strings.HasSuffix(file, "/") {
		file += "README"
	}
	text := string(site[file+".md"])
	if strings.Contains(text, `id="`+anchor+`"`) {
		return true
	}
	for line := range strings.Lines(text) {
		heading := strings.TrimSpace(strings.TrimLeft(line, "#"))
		name := notInAnchor.ReplaceAllString(strings.ToLower(heading), "")
		if strings.HasPrefix(line, "#") && strings.ReplaceAll(name, " ", "-") == anchor {
			return true
		}
	}
	return false
}

func docsNames(pages []string) []string {
	var out []string
	for _, page := range pages {
		if name := strings.Trim(strings.TrimPrefix(page, "/docs/"), "/"); name != "" {
			out = append(out, name)
		}
	}
	return out
}

func completeDocs(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	site, err := llmguard.Site("")
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return docsNames(llmguard.Pages(site)), cobra.ShellCompDirectiveNoFileComp
}

func serveDocs(ctx context.Context, at net.Listener, site map[string][]byte) error {
	server := &http.Server{Handler: docsHandler(site), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(at); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func docsHandler(site map[string][]byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if name == "" {
			name = "index.html"
		}
		content, ok := site[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Content-Type-Options", "nosniff")
		if strings.HasSuffix(name, ".md") {
			h.Set("Content-Type", "text/markdown; charset=utf-8")
		}
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
}

// openBrowser opens a URL in a browser. If there is none, the user still has the printed URL.
func openBrowser(ctx context.Context, stderr io.Writer, url string) {
	command := []string{"xdg-open", url}
	switch runtime.GOOS {
	case "darwin":
		command[0] = "open"
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler", url}
	default:
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return // xdg-open would start a text browser in this terminal
		}
	}
	if _, err := exec.LookPath(command[0]); err != nil {
		return
	}
	run := exec.CommandContext(ctx, command[0], command[1:]...)
	go func() {
		if err := run.Run(); err != nil && ctx.Err() == nil {
			fmt.Fprintln(stderr, "no browser was opened:", err)
		}
	}()
}
