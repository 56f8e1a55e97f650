package cli

import (
	"reflect"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/tenants"
)

var auditCSV = columnsOf(reflect.TypeFor[tenants.AuditEntry](), "id:id;text", "at:at;nanos", "actor:actor;text",
	"action:action", "org:org", "target:target;text", "reason:reason;text", "before:before;json", "after:after;json",
	"request_id:request_id;text", "ip:ip")

// auditWorker lists more entries than the API returns in one page.
func auditWorker(c *cobra.Command) worker {
	var limit int
	var everything bool
	c.Flags().IntVar(&limit, "limit", 100, "maximum number of entries (0: all)")
	c.Flags().BoolVar(&everything, "all", false, "list all entries")
	c.MarkFlagsMutuallyExclusive("all", "limit")
	return func(c *cobra.Command, o *operated, a *adminClient) error {
		if everything {
			limit = 0
		}
		list, err := o.audit(c, a, limit)
		switch {
		case err != nil:
			return err
		case o.output == "csv":
			return csvOf(c.OutOrStdout(), list, auditCSV)
		}
		return o.list(c, reflect.ValueOf(list))
	}
}

func (o *operated) audit(c *cobra.Command, a *adminClient, limit int) ([]tenants.AuditEntry, error) {
	if limit < 0 {
		return nil, misused("--limit %d: expected 0 or more", limit)
	}
	out := []tenants.AuditEntry{}
	for {
		most := 1000
		if limit > 0 {
			most = min(most, limit-len(out))
		}
		o.values["limit"] = strconv.Itoa(most)
		page, err := get[lists[tenants.AuditEntry]](c.Context(), a, o.path())
		if err != nil {
			return nil, err
		}
		out = append(out, page.Data...)
		if !page.HasMore || limit > 0 && len(out) >= limit {
			return out, nil
		}
		o.values["after"] = out[len(out)-1].ID
	}
}
