package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	openai "github.com/sashabaranov/go-openai"
	"github.com/spf13/cobra"
)

// hashLabel is the metadata key by which submit finds a batch that was already submitted.
const hashLabel = "llmguard_sha256"

type submission struct {
	endpoint     string
	watch, again bool
	output, errs string
}

func batchSubmitCommand(f *batchFlags) *cobra.Command {
	var s submission
	c := &cobra.Command{
		Use: "submit FILE|-", Short: "Upload a file of requests and run it as a batch", Args: cobra.ExactArgs(1),
		Long: "Uploads a JSONL file (- for standard input) and prints the id of its batch. If a batch of the same file is running or\n" +
			"completed, the command continues with it, so you can interrupt and repeat it.",
		Example: "  llmguard batch submit in.jsonl --watch --out out.jsonl\n" +
			"  make-requests | llmguard batch submit - --endpoint /v1/embeddings",
		RunE: func(c *cobra.Command, args []string) error {
			b, err := f.open()
			if err != nil {
				return err
			}
			return b.submit(c, args[0], s)
		},
	}
	flags := c.Flags()
	flags.StringVar(&s.endpoint, "endpoint", string(openai.BatchEndpointChatCompletions),
		"endpoint of the requests, as in their url field")
	flags.BoolVar(&s.watch, "watch", false, "follow the batch until it ends")
	flags.BoolVar(&s.again, "again", false, "start a new batch even if one exists for this file")
	flags.StringVar(&s.output, "out", "", "with --watch: file for successful lines (- for standard output)")
	flags.StringVar(&s.errs, "errors", "", "with --watch: file for failed lines")
	return c
}

func (b *batches) submit(c *cobra.Command, path string, s submission) error {
	ctx := c.Context()
	path, clean, err := spooled(c.InOrStdin(), path)
	if clean != nil {
		defer clean()
	}
	if err != nil {
		return err
	}
	hash, err := hashOf(path, s.endpoint)
	if err != nil {
		return err
	}
	id := ""
	if !s.again {
		id, err = b.find(ctx, hash)
		if err != nil {
			return err
		}
	}
	if id != "" {
		fmt.Fprintf(c.ErrOrStderr(), "continuing the existing batch of this file (use --again to start a new one)\n")
	} else {
		id, err = b.create(ctx, path, hash, s.endpoint)
		if err != nil {
			return err
		}
	}
	if s.output != "-" {
		fmt.Fprintln(c.OutOrStdout(), id)
	}
	if !s.watch {
		return nil
	}
	failed := b.watch(ctx, c.ErrOrStderr(), id)
	batch, _, err := b.get(context.WithoutCancel(ctx), id)
	if err == nil && ended(batch.Status) {
		err = b.fetch(c, batch, s.output, s.errs)
	}
	if failed != nil {
		return failed
	}
	return err
}

// spooled copies standard input to a file, because it is read twice.
func spooled(stdin io.Reader, path string) (string, func(), error) {
	if path != "-" {
		return path, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "llmguard-batch-")
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, "stdin.jsonl")
	return path, func() { _ = os.RemoveAll(dir) }, intoFile(path, copyOf(stdin))
}

func hashOf(path, endpoint string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", endpoint)
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// find returns a running or completed batch of the same file.
func (b *batches) find(ctx context.Context, hash string) (string, error) {
	limit, after := 100, (*string)(nil)
	for range 10 {
		list, err := b.ListBatch(ctx, after, &limit)
		if err != nil {
			return "", err
		}
		for _, one := range list.Data {
			if one.Metadata[hashLabel] == hash &&
				(!ended(one.Status) && one.Status != "cancelling" || one.Status == "completed") {
				return one.ID, nil
			}
		}
		if !list.HasMore {
			break
		}
		after = &list.LastID
	}
	return "", nil
}

func (b *batches) create(ctx context.Context, path, hash, endpoint string) (string, error) {
	file, err := b.CreateFile(ctx, openai.FileRequest{FileName: filepath.Base(path), FilePath: path, Purpose: "batch"})
	if err != nil {
		return "", err
	}
	made, err := b.CreateBatch(ctx, openai.CreateBatchRequest{
		InputFileID: file.ID, Endpoint: openai.BatchEndpoint(endpoint), CompletionWindow: "24h",
		Metadata: map[string]any{hashLabel: hash, "file": filepath.Base(path)},
	})
	return made.ID, err
}
