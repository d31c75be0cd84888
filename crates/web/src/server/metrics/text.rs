//! Writes metrics in the text format of Prometheus.

use std::fmt::Write as _;

use cowhand_store::histogram::Histogram;

/// All metrics of one moment, as text.
#[derive(Debug, Default)]
pub(super) struct MetricsText {
    text: String,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
}

pub(super) type MetricLabels<'l> = &'l [(&'l str, &'l str)];

impl MetricsText {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Writes one metric: its description and its samples.
    pub(super) fn family<L, V>(
        &mut self,
        kind: MetricKind,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, V)>,
    ) where
        L: AsRef<[(&'static str, String)]>,
        V: std::fmt::Display,
    {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        self.head(name, help, kind);
        for (labels, value) in samples {
            let labels: Vec<_> = labels.as_ref().iter().map(|(key, value)| (*key, value.as_str())).collect();
            self.sample(name, &labels, &value);
        }
    }

    pub(super) fn single(&mut self, kind: MetricKind, name: &str, help: &str, value: impl std::fmt::Display) {
        self.family(kind, name, help, [(NO_LABELS, value)]);
    }

    pub(super) fn histograms<'h>(
        &mut self,
        name: &str,
        help: &str,
        histograms: impl IntoIterator<Item = (Vec<(&'h str, &'h str)>, &'h Histogram)>,
    ) {
        self.head(name, help, "histogram");
        for (labels, histogram) in histograms {
            let mut total = 0;
            let bounds = histogram.bounds().iter().map(f64::to_string).chain(["+Inf".to_owned()]);
            for (bound, count) in bounds.zip(histogram.counts()) {
                total += count;
                let labels = [&labels[..], &[("le", bound.as_str())]].concat();
                self.sample(&format!("{name}_bucket"), &labels, &total);
            }
            self.sample(&format!("{name}_sum"), &labels, &histogram.sum());
            self.sample(&format!("{name}_count"), &labels, &total);
        }
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: MetricLabels<'_>, value: &impl std::fmt::Display) {
        self.text.push_str(name);
        for (number, (key, value)) in labels.iter().enumerate() {
            self.text.push(if number == 0 { '{' } else { ',' });
            let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            let _ = write!(self.text, "{key}=\"{value}\"");
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

const NO_LABELS: [(&str, String); 0] = [];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_written_in_the_prometheus_format() {
        let mut page = MetricsText::default();
        page.single(MetricKind::Gauge, "up", "Whether it is.", 1);
        let labels = [("name", "a \"b\\\nc".to_owned()), ("kind", "x".to_owned())];
        page.family(MetricKind::Counter, "jobs_total", "Jobs.", [(labels, 7)]);
        let mut histogram = Histogram::new(&[0.5, 1.0]);
        for value in [0.5, 0.7, 9.0] {
            histogram.observe(value);
        }
        page.histograms("took_seconds", "How long.", [(vec![("agent", "a")], &histogram)]);
        insta::assert_snapshot!(page.into_text());
    }
}
