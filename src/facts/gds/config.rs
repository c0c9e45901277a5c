//! cuFile's settings: a file of JSON with comments, of which variables of the environment beat some.

use std::iter::Peekable;
use std::path::PathBuf;
use std::str::Chars;

use crate::facts::Fact;
use crate::facts::tree::Tree;

const NAMED: &str = "CUFILE_ENV_PATH_JSON";
const CONFIG: &str = "/etc/cufile.json";

pub(super) struct Config<'v> {
    /// Where they are written; unknown where nowhere.
    pub(super) file: Fact<PathBuf>,
    values: Vec<(String, String)>,
    variable: &'v dyn Fn(&str) -> Option<String>,
}

impl<'v> Config<'v> {
    pub(super) fn find(tree: &Tree, variable: &'v dyn Fn(&str) -> Option<String>) -> Self {
        let named = variable(NAMED);
        let by = if named.is_some() { NAMED } else { CONFIG };
        let path = named.unwrap_or_else(|| CONFIG.to_owned());
        let (file, values) = match tree.text(&path) {
            Ok(text) => (Fact::known(path.into(), by), values(&text)),
            Err(error) => (
                Fact::unknown(format!("{path}: {error}; cuFile uses its defaults")),
                Vec::new(),
            ),
        };
        Self {
            file,
            values,
            variable,
        }
    }

    /// What the variable says; else what the file has under these names.
    pub(super) fn told(&self, variable: Option<&str>, names: &str) -> Fact<String> {
        let by_variable = variable.and_then(|name| Some((name, (self.variable)(name)?)));
        if let Some((name, value)) = by_variable {
            return Fact::known(value, name);
        }
        let Some(file) = &self.file.value else {
            return Fact::unknown(&self.file.evidence);
        };
        let evidence = format!("{}: {names}", file.display());
        // Of settings that are written twice the last counts.
        let written = self.values.iter().rfind(|(it, _)| it == names);
        match written {
            Some((_, value)) => Fact::known(value.clone(), evidence),
            None => Fact::unknown(format!("{evidence} is not set")),
        }
    }

    /// The same of a setting that is on or off.
    pub(super) fn flag(&self, variable: Option<&str>, names: &str) -> Fact<bool> {
        let fact = self.told(variable, names);
        match fact.value.as_deref().map(truth) {
            Some(None) => Fact::unknown(format!("{} is {:?}", fact.evidence, fact.value)),
            known => Fact::new(known.flatten(), fact.evidence),
        }
    }

    /// All settings under a name, the last of their names before each.
    pub(super) fn under(&self, name: &str) -> Fact<Vec<(String, String)>> {
        let Some(file) = &self.file.value else {
            return Fact::unknown(&self.file.evidence);
        };
        let of = |(names, value): &(String, String)| {
            let last = names.strip_prefix(name)?.strip_prefix('.')?;
            Some((last.to_owned(), value.clone()))
        };
        let found = self.values.iter().filter_map(of).collect();
        Fact::known(found, format!("{}: {name}", file.display()))
    }
}

fn truth(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

/// The plain values in a text of JSON, each with the names that lead to it, joined by dots; of a list each value.
fn values(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut around: Vec<String> = Vec::new();
    let (mut name, mut last) = (None, None);
    for token in Tokens(text.chars().peekable()) {
        if let Some(value) = last.take_if(|_| token.ends_a_value()) {
            let names = around.iter().chain(name.iter());
            let names: Vec<&str> = names
                .map(String::as_str)
                .filter(|it| !it.is_empty())
                .collect();
            found.push((names.join("."), value));
        }
        match token {
            Token::Text(text) => last = Some(text),
            Token::Colon => name = last.take(),
            Token::Open => around.push(name.take().unwrap_or_default()),
            Token::Comma => name = None,
            Token::Close => {
                around.pop();
                name = None;
            }
        }
    }
    found
}

enum Token {
    Open,
    Close,
    Colon,
    Comma,
    Text(String),
}

impl Token {
    fn ends_a_value(&self) -> bool {
        matches!(self, Self::Comma | Self::Close)
    }
}

struct Tokens<'t>(Peekable<Chars<'t>>);

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        loop {
            match self.0.next()? {
                '{' | '[' => return Some(Token::Open),
                '}' | ']' => return Some(Token::Close),
                ':' => return Some(Token::Colon),
                ',' => return Some(Token::Comma),
                '"' => return Some(Token::Text(self.quoted())),
                '/' => self.skip_comment(),
                blank if blank.is_whitespace() => {}
                first => return Some(Token::Text(self.word(first))),
            }
        }
    }
}

impl Tokens<'_> {
    fn quoted(&mut self) -> String {
        let mut text = String::new();
        while let Some(next) = self.0.next() {
            match next {
                '"' => break,
                '\\' => text.extend(self.0.next()),
                other => text.push(other),
            }
        }
        text
    }

    fn word(&mut self, first: char) -> String {
        let inside = |next: &char| !next.is_whitespace() && !"{}[]:,\"/".contains(*next);
        let mut word = String::from(first);
        while let Some(next) = self.0.next_if(inside) {
            word.push(next);
        }
        word
    }

    /// To the end of the line, or of a comment between `/*` and `*/`.
    fn skip_comment(&mut self) {
        if self.0.next_if_eq(&'*').is_none() {
            self.0
                .by_ref()
                .take_while(|next| *next != '\n')
                .for_each(drop);
            return;
        }
        let mut before = ' ';
        for next in self.0.by_ref() {
            if (before, next) == ('*', '/') {
                return;
            }
            before = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::Machine;

    const JSON: &str = r#"{
  // "use_pci_p2pdma": false,
  /* "properties": { "force_compat_mode": true }, */
  "logging": { "dir": "/var/log//cufile", "level": "ERROR" },
  "block": { "nvme": { "use_pci_p2pdma": false }, "raid": { "use_pci_p2pdma": true } },
  "properties": { "allow_compat_mode": true, // not "false"
    "posix_pool_slab_size_kb": [4, 1024],
    "use_pci_p2pdma" : true },
  "denylist": { "drivers": [], "mounts": ["/data", "/a, b"], "filesystems": [ "xfs" ] }
}"#;

    fn none(_: &str) -> Option<String> {
        None
    }

    fn with_file() -> Machine {
        let machine = Machine::new();
        machine.file("etc/cufile.json", JSON);
        machine
    }

    #[test]
    fn a_setting_is_found_by_all_of_its_names() {
        let machine = with_file();
        let config = Config::find(&machine.tree(), &none);
        let flag = |names| config.flag(None, names).value;
        assert_eq!(flag("properties.use_pci_p2pdma"), Some(true));
        assert_eq!(flag("block.nvme.use_pci_p2pdma"), Some(false));
        assert_eq!(flag("block.raid.use_pci_p2pdma"), Some(true));
        assert_eq!(flag("properties.allow_compat_mode"), Some(true));
        assert_eq!(flag("properties.force_compat_mode"), None);
        let told = |names| config.told(None, names).value;
        assert_eq!(told("logging.dir").as_deref(), Some("/var/log//cufile"));
        assert_eq!(told("logging.level").as_deref(), Some("ERROR"));
        let unset = config.told(None, "level");
        assert!(unset.value.is_none() && unset.evidence.ends_with("level is not set"));
        let denied = config.under("denylist").value.unwrap();
        let denied: Vec<_> = denied.iter().map(|(name, it)| (&**name, &**it)).collect();
        assert_eq!(
            denied,
            [
                ("mounts", "/data"),
                ("mounts", "/a, b"),
                ("filesystems", "xfs")
            ]
        );
    }

    #[test]
    fn the_environment_beats_the_file() {
        let machine = with_file();
        let variable = |name: &str| Some(if name == "ON" { "TRUE" } else { "maybe" }.to_owned());
        let in_file = |name: &str| variable(name).filter(|_| name != NAMED);
        let config = Config::find(&machine.tree(), &in_file);
        let names = "block.nvme.use_pci_p2pdma";
        assert_eq!(config.flag(Some("ON"), names), Fact::known(true, "ON"));
        let odd = config.flag(Some("ODD"), names);
        assert!(
            odd.value.is_none() && odd.evidence.contains("maybe"),
            "{odd:?}"
        );
        assert_eq!(config.flag(None, names).value, Some(false));
    }

    #[test]
    fn the_environment_may_name_another_file_which_must_be_there() {
        let machine = with_file();
        let other = |name: &str| (name == NAMED).then(|| "/other.json".to_owned());
        let config = Config::find(&machine.tree(), &other);
        assert_eq!(config.file.value, None);
        let flag = config.flag(None, "properties.allow_compat_mode");
        assert!(flag.evidence.contains("/other.json"));
        machine.file(
            "other.json",
            r#"{"properties": {"allow_compat_mode": false}}"#,
        );
        let config = Config::find(&machine.tree(), &other);
        let flag = config.flag(None, "properties.allow_compat_mode");
        assert_eq!(flag.value, Some(false));
        assert_eq!(config.file, Fact::known("/other.json".into(), NAMED));
    }

    #[test]
    fn of_a_setting_that_is_written_twice_the_last_counts() {
        let machine = Machine::new();
        machine.file(
            "etc/cufile.json",
            r#"{"a": {"b": true}, "a": {"b": false}}"#,
        );
        let config = Config::find(&machine.tree(), &none);
        assert_eq!(config.flag(None, "a.b").value, Some(false));
    }

    #[test]
    fn what_is_cut_off_or_no_json_ends_the_settings_and_nothing_else() {
        for cut in 0..JSON.len() {
            let known = values(&JSON[..cut]);
            assert!(known.len() <= values(JSON).len());
        }
        assert_eq!(values("]]}} : , \u{0}"), []);
        let last = values(r#"{"a": {"b": "quoted \" , 1"}"#);
        assert_eq!(last, [("a.b".to_owned(), r#"quoted " , 1"#.to_owned())]);
    }
}
