//! The modules of a crate, and the names that each of them uses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Item, UseTree};

/// The path of a module from the root of its crate; empty for the root itself.
pub type ModulePath = Vec<String>;

/// A crate: all its modules by path.
pub struct Crate {
    pub name: String,
    pub modules: BTreeMap<ModulePath, Module>,
}

/// One module, without what is only compiled for tests.
#[derive(Default)]
pub struct Module {
    pub file: PathBuf,
    /// All paths that begin with `crate`, `self` or `super`, from the root of the crate.
    pub uses: BTreeSet<Vec<String>>,
    /// What names that are imported or re-exported here stand for.
    names: BTreeMap<String, Vec<String>>,
}

impl Crate {
    pub fn read(root: &Path) -> Result<Self> {
        let directory = root.parent().context("a root file without a directory")?;
        let name = directory.parent().and_then(Path::file_name).unwrap_or_default();
        let mut read = Self {
            name: name.to_string_lossy().into_owned(),
            modules: BTreeMap::new(),
        };
        read.add_file(Vec::new(), root, directory)?;
        Ok(read)
    }

    /// The module in which a path from the root ends, following re-exports.
    pub fn resolve(&self, path: &[String]) -> ModulePath {
        let mut path = path.to_vec();
        // Re-exports may lead in a circle: no real one is so deep.
        for _ in 0..8 {
            let depth = (0..=path.len())
                .rev()
                .find(|depth| self.modules.contains_key(path.get(..*depth).unwrap_or_default()));
            let (module, rest) = path.split_at(depth.unwrap_or_default());
            let names = self.modules.get(module).map(|module| &module.names);
            let target = rest.first().and_then(|name| names?.get(name));
            let Some(target) = target.filter(|target| !path.starts_with(target)) else {
                return module.to_vec();
            };
            path = [target.as_slice(), rest.get(1..).unwrap_or_default()].concat();
        }
        path
    }

    /// `directory` is where files of child modules are.
    fn add_file(&mut self, path: ModulePath, file: &Path, directory: &Path) -> Result<()> {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("parsing {}", file.display()))?;
        self.add_items(path, file, directory, parsed.items)
    }

    fn add_items(&mut self, path: ModulePath, file: &Path, directory: &Path, items: Vec<Item>) -> Result<()> {
        let mut module = Module {
            file: file.to_owned(),
            ..Module::default()
        };
        for item in items {
            match item {
                item if is_for_tests(attributes(&item)) => {}
                Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let child_path = [path.as_slice(), std::slice::from_ref(&name)].concat();
                    let below = directory.join(&name);
                    if let Some((_, items)) = child.content {
                        self.add_items(child_path, file, &below, items)?;
                    } else {
                        let file = child_file(directory, &name, &child.attrs)?;
                        self.add_file(child_path, &file, &below)?;
                    }
                }
                item => {
                    if let Item::Use(item) = &item {
                        import(&path, &item.tree, &mut Vec::new(), &mut module.names);
                    }
                    collect(&path, item.to_token_stream(), &mut module.uses);
                }
            }
        }
        self.modules.insert(path, module);
        Ok(())
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        _ => &[],
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let tokens = attribute.meta.to_token_stream().to_string();
        attribute.path().is_ident("cfg") && tokens.replace(' ', "").contains("(test")
    })
}

/// The file of a child module, by one of the two conventions or by its attribute.
fn child_file(directory: &Path, name: &str, attributes: &[Attribute]) -> Result<PathBuf> {
    for attribute in attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("path"))
    {
        if let syn::Meta::NameValue(value) = &attribute.meta
            && let syn::Expr::Lit(literal) = &value.value
            && let syn::Lit::Str(path) = &literal.lit
        {
            let parent = directory.parent().context("a module without a directory")?;
            let near = [directory, parent].map(|near| near.join(path.value()));
            let found = near.into_iter().find(|file| file.is_file());
            return found.with_context(|| format!("{name}: no file {}", path.value()));
        }
    }
    let files = [
        directory.join(format!("{name}.rs")),
        directory.join(name).join("mod.rs"),
    ];
    let found = files.into_iter().find(|file| file.is_file());
    found.with_context(|| format!("no file for the module {name} in {}", directory.display()))
}

/// Notes what each name of a `use` stands for.
fn import(
    module: &[String],
    tree: &UseTree,
    prefix: &mut Vec<String>,
    names: &mut BTreeMap<String, Vec<String>>,
) {
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            import(module, &path.tree, prefix, names);
            prefix.pop();
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                import(module, tree, prefix, names);
            }
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            let path = [prefix.as_slice(), std::slice::from_ref(&name)].concat();
            names.extend(absolute(module, &path).map(|path| (name, path)));
        }
        UseTree::Rename(rename) => {
            let path = [prefix.as_slice(), &[rename.ident.to_string()]].concat();
            names.extend(absolute(module, &path).map(|path| (rename.rename.to_string(), path)));
        }
        UseTree::Glob(_) => {}
    }
}

/// A path from the root of the crate. In the root, a `use` may begin with a child module.
fn absolute(module: &[String], path: &[String]) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let parent = module.split_last().map(|(_, parent)| parent)?;
            if rest.first().is_some_and(|next| next == "super") {
                absolute(parent, rest)
            } else {
                Some([parent, rest].concat())
            }
        }
        _ => Some([module, path].concat()),
    }
}

/// Collects all paths that begin with `crate`, `self` or `super`, also those in macros.
fn collect(module: &[String], tokens: TokenStream, uses: &mut BTreeSet<Vec<String>>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut rest = tokens.as_slice();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            TokenTree::Group(group) => collect(module, group.stream(), uses),
            TokenTree::Ident(ident) if ["crate", "super", "self"].iter().any(|word| ident == word) => {
                rest = follow(module, vec![ident.to_string()], after, uses);
            }
            _ => {}
        }
    }
}

/// Follows a path to its end, or to all its ends if it has a group of them.
fn follow<'a>(
    module: &[String],
    mut path: Vec<String>,
    mut tokens: &'a [TokenTree],
    uses: &mut BTreeSet<Vec<String>>,
) -> &'a [TokenTree] {
    while let [TokenTree::Punct(a), TokenTree::Punct(b), next, after @ ..] = tokens {
        if a.as_char() != ':' || b.as_char() != ':' {
            break;
        }
        match next {
            TokenTree::Ident(ident) => path.push(ident.to_string()),
            TokenTree::Group(group) => {
                let ends: Vec<TokenTree> = group.stream().into_iter().collect();
                for end in ends.split(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ',')) {
                    if let Some((TokenTree::Ident(ident), after)) = end.split_first() {
                        let longer = [path.as_slice(), &[ident.to_string()]].concat();
                        follow(module, longer, after, uses);
                    }
                }
                return after;
            }
            _ => break,
        }
        tokens = after;
    }
    if path.len() > 1 {
        uses.extend(absolute(module, &path));
    }
    tokens
}
