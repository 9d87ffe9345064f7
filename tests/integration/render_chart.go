// Renders a template of the chart by Go's text/template, which is Helm's own engine, with Helm's functions that the chart
// uses. Values come as JSON, and toYaml writes JSON, which is YAML. An unknown value is an error.
// usage: render_chart TEMPLATE VALUES.json NAMESPACE > MANIFESTS
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/template"
)

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = render(string(text), os.Args[2], os.Args[3])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(text, path, namespace string) error {
	bytes, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var values map[string]interface{}
	if err = json.Unmarshal(bytes, &values); err != nil {
		return err
	}
	functions := template.FuncMap{
		"quote": func(value interface{}) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"toYaml": func(value interface{}) (string, error) {
			json, err := json.Marshal(value)
			return string(json), err
		},
		"nindent": func(spaces int, text string) string {
			return "\n" + strings.Repeat(" ", spaces) + strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", spaces))
		},
	}
	parsed, err := template.New("chart").Option("missingkey=error").Funcs(functions).Parse(text)
	if err != nil {
		return err
	}
	return parsed.Execute(os.Stdout, map[string]interface{}{"Values": values, "Release": map[string]string{"Namespace": namespace}})
}
